"""Instants on storage, and the file versions they make visible."""
