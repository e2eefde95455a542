"""The files of the timeline: conversion between bytes and model values."""
