"""Golden predictions; `python -m tests.golden` writes them anew."""
