"""What all tests share: compiled kernels, one thread of torch, and a profiler on request."""

import pytest

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


# Fixtures import what they need, so that the process that only distributes the tests need not.


def torch_defaults():
    """float32, and one thread: with more, small networks mostly wait for their threads."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session", autouse=True)
def _session():
    from shared_kernels import shared_kernels

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
