"""Lets brokers dial one another through links that can be cut: by name, each with a hosts file of its own.

A broker tells all others one address at which to dial it. So it tells a name, its node's; and each process is
started with jdk.net.hosts.file (Java 9 and newer), by which that name means the dialer's own link.
"""

import socket

from floodmark.harness.cluster.layout import Address, Layout
from floodmark.harness.cluster.ports import HOST


def advertised_to_brokers(layout: Layout, node: str) -> Address:
    """Where other brokers dial it."""
    if not layout.link_hosts:
        return layout.places[node].control
    return node, layout.places[node].control[1]  # links listen at the same port, on addresses of their own


def write_hosts(layout: Layout) -> None:
    """The hosts file of each process. With one, Java asks nobody else: so the machine's name is in it."""
    for name, host in layout.link_hosts.items():
        lines = [f"{HOST} localhost {socket.gethostname()} {name}",
                 *(f"{host} {other}" for other in layout.names if other != name)]
        layout.hosts_of(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
