"""Helpers for Arrow data: conversion to a schema, gathering by position, sizes in bytes."""
