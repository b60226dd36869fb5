"""numpy_fork.py: products in the parent, in forked and spawned children, and in children of a fork during a product."""

import multiprocessing
import os
import threading

import numpy as np

a = np.random.default_rng(1).standard_normal((400, 400))


def product(_=None):
    return np.linalg.norm(a @ a)


def child_of_fork():
    """The exit status of a forked child that multiplies: 0 if it finds the parent's result."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if abs(product() - norm) < 1e-11 * norm else 3)
    return os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    norm = product()
    print("norm %.14e" % norm)
    print("fork", child_of_fork())
    for method in "fork", "spawn":
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, *("%.14e" % x for x in pool.map(product, range(4))))
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            a @ a

    thread = threading.Thread(target=spin)
    thread.start()
    print("fork beside a product", {child_of_fork() for _ in range(20)})
    stop.set()
    thread.join()
    print("norm %.14e" % product())
