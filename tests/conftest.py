"""What every test starts from and leaves behind."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

matplotlib.use("Agg")  # no test opens a window


@pytest.fixture(autouse=True)
def same_start():
    """The same random numbers for each test, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def close_figures():
    """No figure outlives its test."""
    yield
    plt.close("all")
