"""The code that chapters build and later chapters use: a module for each subject."""
