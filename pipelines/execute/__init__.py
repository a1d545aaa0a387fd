"""Run the stages of a study and the jobs of a sweep."""
