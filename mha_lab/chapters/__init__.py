"""The code that chapters 06 to 10 build and later chapters use: a module for each subject."""
