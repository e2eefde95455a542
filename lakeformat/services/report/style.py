"""The style of the page: light and dark, for narrow and wide screens, without anything from elsewhere."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root{color-scheme:light dark;--page:#f3f5f7;--card:#fff;--text:#1b2530;--soft:#556371;--rule:#d5dce3;
--blue:#1f6fb2;--orange:#b9540f;--green:#2b7a4b;--red:#b3261e;--violet:#6d4fb3;--grey:#74828f;--faint:#dde8f3}
@media (prefers-color-scheme:dark){:root{--page:#11161b;--card:#1a2128;--text:#e5eaef;--soft:#a4b1bd;--rule:#35404b;
--blue:#6cb2ee;--orange:#f2a65a;--green:#6fcf97;--red:#ff8a80;--violet:#b8a1f0;--grey:#8b99a6;--faint:#21364a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main,footer{max-width:1240px;margin:0 auto;padding:0 16px}
header{padding-top:20px}
h1{font-size:1.6rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 10px}
h3{font-size:.95rem;margin:14px 0 4px}
header p,footer p,.note,.gone,caption{color:var(--soft)}
header p{margin:4px 0 0;overflow-wrap:anywhere}
.note,.gone{margin:8px 0 0;font-size:.9rem;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:16px 0;padding:0;
list-style:none}
.tiles li{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px;min-width:0}
.tiles b{display:block;font-size:1.25rem;line-height:1.3;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:.85rem}
main{columns:2;column-gap:16px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:14px 16px;margin:0 0 16px;
break-inside:avoid}
.wide{column-span:all;margin-top:16px}
.scroll{overflow-x:auto}
.scroll+.scroll{margin-top:14px}
.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--blue);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.88rem}
caption{text-align:left;padding:2px 0 4px}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-top:1px solid var(--rule);font-weight:400}
thead th{border-top:0;color:var(--soft);white-space:nowrap}
tbody th{overflow-wrap:anywhere;min-width:7em}
td{overflow-wrap:break-word}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.picture{min-width:70px;width:26%}
.bar{display:block;width:100%;height:10px;margin-top:5px}
.chart{display:block;width:100%;height:auto;max-width:620px;margin:2px auto 8px}
.chart text{font:11.5px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--soft)}
.chart text.small{font-size:10px}
.rule{stroke:var(--rule);fill:none}.faint{stroke-dasharray:2 3}
.line{stroke:var(--blue);stroke-width:1.8;fill:none;stroke-linejoin:round}.area{fill:var(--faint);stroke:none}
.mark{stroke:var(--card);stroke-width:1}
.frame{fill:none;stroke:var(--rule)}
.box{fill:var(--grey);stroke:var(--grey);stroke-opacity:.6;stroke-width:.7}
.box.read{fill:var(--orange);stroke:var(--orange);stroke-opacity:.9}
.fill-blue{fill:var(--blue)}.fill-orange{fill:var(--orange)}.fill-green{fill:var(--green)}.fill-red{fill:var(--red)}
.fill-violet{fill:var(--violet)}.fill-grey{fill:var(--grey)}
.due,.idle{white-space:nowrap}.due,.bad{color:var(--orange);font-weight:600}.bad{color:var(--red)}.good{color:var(--green);font-weight:600}
details{margin-top:8px}summary{cursor:pointer;color:var(--blue)}
dl{display:grid;grid-template-columns:minmax(7em,max-content) minmax(0,1fr);gap:3px 14px;margin:0;font-size:.9rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
footer{padding-bottom:24px}footer p{font-size:.85rem}
@media (max-width:800px){main{columns:1}.card{padding:12px}.chart text{font-size:13.5px}
.chart text.small{font-size:12px}th,td{padding-right:9px}tbody th{min-width:5.6em}.picture{min-width:36px;width:16%}}
@media print{body{background:#fff}.card,.tiles li{break-inside:avoid}}
"""
