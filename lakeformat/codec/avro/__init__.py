"""Avro bytes and Arrow columns: object containers, schemas, records."""
