"""What all tests share: the CPU, compiled kernels, one thread of torch, and a profiler on request."""

import os

import pytest

# Where there is a GPU it would be the default, also of the programs that tests start: minutes of compiling, and other
# last digits. Tests marked `cuda` name their device.
os.environ.setdefault("WARP_ARTICULATED_DEVICE", "cpu")

# Files that take longest. They come first: started last, one of them would keep one core busy while the others wait.
LONGEST = ("test_cuda_compiles.py", "test_rl_distributed.py", "test_examples.py")


def pytest_addoption(parser):
    parser.addoption(
        "--kernel-times",
        metavar="FOLDER",
        help="write CPU time and compiled kernels of every test to this folder, and print a summary",
    )


def pytest_configure(config):
    folder = config.getoption("--kernel-times")
    if folder:
        from kernel_times import KernelTimes

        config.pluginmanager.register(KernelTimes(config, folder))


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONGEST)
    on_gpu = [item for item in items if "cuda" in item.keywords]
    if on_gpu and not has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device here that torch can use"))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# Fixtures import what they need, so that the process that only distributes the tests need not.


def torch_defaults():
    """float32, and one thread: with more, small networks mostly wait for their threads."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session", autouse=True)
def _session():
    import warp as wp
    from shared_kernels import shared_kernels

    if os.environ["WARP_ARTICULATED_DEVICE"] == "cpu":
        wp.set_device("cpu")  # which casts rays
    torch_defaults()  # fixtures of a module come before those of its first test
    with shared_kernels():
        yield


@pytest.fixture(autouse=True)
def _test():
    torch_defaults()


@pytest.fixture
def own_kernels():
    """A test's simulators have kernels of the sizes that a user's have, instead of those that all tests share."""
    from shared_kernels import own_kernels

    with own_kernels():
        yield
