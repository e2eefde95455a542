"""SQL over tables that are in no catalog: statements are parsed into values, which each host runs."""
