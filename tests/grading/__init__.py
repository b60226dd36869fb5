"""Grading the accuracy of a DGEMM: inputs, exact errors, yes/no tests, table and plot. scripts/grade runs it; test_grading.py tests it."""
