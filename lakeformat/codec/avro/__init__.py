"""Avro: object container files, schemas, and conversion between encoded Avro records and Arrow columns."""
