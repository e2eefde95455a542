"""Going back: restore to an instant, rollback of the last commit."""
