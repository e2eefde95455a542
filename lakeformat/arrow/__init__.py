"""Helpers for Arrow data: conversion to a schema, selection of rows by position, sizes of rows in bytes."""
