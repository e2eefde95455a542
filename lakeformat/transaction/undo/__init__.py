"""What actions leave behind, and how dead writers' writes and completed commits are undone."""
