"""Avro: object containers, schemas, and conversion between Avro bytes and Arrow columns."""
