"""What a write refuses about its options, whatever the table and the rows: the same for a write and for a question.

Writes call `check_job` before they begin. ``lakeformat options check`` prints `judge_job`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lakeformat.catalog.verbs import registration_note
from lakeformat.config import clustering_options as clustering
from lakeformat.config import compaction_options as compaction
from lakeformat.config.catalog_options import CATALOG_SWITCH
from lakeformat.config.hudi_support import BY_NAME
from lakeformat.config.packages import find_missing_packages
from lakeformat.config.problems import Problem, join_errors
from lakeformat.config.resolve import Options, find_contradictions
from lakeformat.config.retention_options import MAX_COMMITS
from lakeformat.config.stream_options import BATCH_ID
from lakeformat.config.verdicts import OptionOutcome, Verdict, judge
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.services.archive.plan import archive_limits
from lakeformat.storage import check_package
from lakeformat.transaction.commit.hooks import callbacks_of, validators_of
from lakeformat.transaction.order.batch_ids import batch_of
from lakeformat.write.plan.job import check_combining, choose_operation
from lakeformat.write.plan.merging import find_partial_or_merger, merge_mode
from lakeformat.write.plan.table_settings import named_generator, named_partitions

__all__ = ["check_job", "find_problems", "judge_job"]

_WRITE: Final = "hoodie.datasource.write."


def _check_service(inline: str, apart: str, options: Options) -> None:
    if options[inline] and options[apart]:
        raise InvalidOptionError(f"{inline}=true and {apart}=true exclude each other; set one of them")


#: Pairs of an option and the check of the options around it. A check raises `LakeformatError`.
_CHECKS: Final[tuple[tuple[str, Callable[[Options], object]], ...]] = (
    (_WRITE + "payload.class", lambda options: merge_mode(None, options)),
    ("lakeformat.write.partial.update", find_partial_or_merger),
    (
        _WRITE + "operation",
        lambda options: choose_operation(options.write.operation, options, has_key=True, overwrite=False),
    ),
    ("hoodie.combine.before.upsert", check_combining),
    ("hoodie.precommit.validators", validators_of),
    ("hoodie.write.commit.callback.on", callbacks_of),
    (BATCH_ID, batch_of),
    (MAX_COMMITS, archive_limits),
    (clustering.INLINE, partial(_check_service, clustering.INLINE, clustering.SCHEDULE_INLINE)),
    (compaction.INLINE, partial(_check_service, compaction.INLINE, compaction.SCHEDULE_INLINE)),
    (_WRITE + "keygenerator.class", named_generator),
    (_WRITE + "partitionpath.field", named_partitions),
    (clustering.PLAN_CLASS, lambda options: options.clustering),
)


def find_problems(options: Options) -> Iterator[Problem]:
    """Find all reasons why a write with these options fails, whatever the table and the rows."""
    yield from find_contradictions(options)
    yield from find_missing_packages(options.__getitem__)
    if (note := registration_note(options)) and options.fails_without_registration:
        yield Problem(CATALOG_SWITCH, note)
    for option, check in _CHECKS:
        try:
            check(options)
        except LakeformatError as error:
            yield Problem(option, str(error))


def check_job(options: Options) -> None:
    """Check what a write needs that does not depend on the table and the rows. Call it before the write begins.

    Raises:
        InvalidOptionError: at least one option cannot be used, or a package or an address is missing. The message
            lists all of them.
    """
    if problems := [problem.text for problem in find_problems(options)]:
        raise InvalidOptionError(join_errors(problems))


def judge_job(raw: Mapping[str, Any]) -> list[Verdict]:
    """Return the decision about each option of a job, with all that a write with these options refuses."""
    judged = judge(raw)
    options = Options(judged.values, judged.extra_metadata, judged.timestamp)
    verdicts = judged.verdicts
    for problem in (*find_problems(options), *_storage_problems(raw)):
        verdicts = _with_problem(verdicts, problem)
    note = registration_note(options)
    if note and not options.fails_without_registration:
        verdicts = _with_problem(verdicts, Problem(CATALOG_SWITCH, note), OptionOutcome.INCOMPLETE)
    return verdicts


def _with_problem(
    verdicts: list[Verdict], problem: Problem, outcome: OptionOutcome = OptionOutcome.REFUSED
) -> list[Verdict]:
    """Return the verdicts with a problem at the option that brings it; at the end if that option was not given."""
    error = problem.text if outcome is OptionOutcome.REFUSED else ""
    explanation = problem.text if error else f"the write is done, but not registered: {problem.text}"
    for number, verdict in enumerate(verdicts):
        option = BY_NAME.get(verdict.name.lower())
        names = {verdict.name.lower(), option.key.lower() if option else ""}
        if problem.option.lower() in names and not verdict.error:
            changed = replace(verdict, outcome=outcome, explanation=explanation, error=error)
            return [*verdicts[:number], changed, *verdicts[number + 1 :]]
    return [*verdicts, Verdict(problem.option, "", outcome, explanation, error=error)]


def _storage_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Find packages that are missing to open the table's URL: the one given, or the one that ``fs.s3a.*`` is for."""
    given = {str(name).lower(): (str(name), str(value)) for name, value in raw.items()}
    paths = [given[name] for name in ("path", "hoodie.base.path", "basepath") if name in given]
    if not paths:
        paths = [(name, "s3://") for lower, (name, _) in given.items() if lower.startswith("fs.s3a.")][:1]
    for name, path in paths[:1]:
        try:
            check_package(path)
        except LakeformatError as error:
            yield Problem(name, str(error))
