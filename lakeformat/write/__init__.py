"""The write path, a room per step: rows, decide, place, make; statements on top; sessions carry it out."""
