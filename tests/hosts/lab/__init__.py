"""Several hosts on one machine. `with Lab() as lab:` and then `lab.host("a")`, `lab.network("lan")`."""

from lab.capture import Capture
from lab.host import Completed, Host, HostTimeout, Running
from lab.lab import Lab
from lab.network import Network

__all__ = ["Capture", "Completed", "Host", "HostTimeout", "Lab", "Network", "Running"]
