"""The cases of CPython's suite of `multiprocessing`, as a module that slots can import, too.

Processes are started by `fork`, so that what tests start has our names.
"""

from test._test_multiprocessing import install_tests_in_module_dict

install_tests_in_module_dict(globals(), "fork")
