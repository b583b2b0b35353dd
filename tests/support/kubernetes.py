"""What Kubernetes adds to the environment of a container."""

from __future__ import annotations


def service_links(service: str) -> dict[str, str]:
    """What the kubelet sets in a pod beside a Service with the port 9464, named `http`."""
    name, address = service.upper().replace("-", "_"), "10.96.0.7"
    url = f"tcp://{address}:9464"
    return {
        f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": "9464", f"{name}_SERVICE_PORT_HTTP": "9464",
        f"{name}_PORT": url, f"{name}_PORT_9464_TCP": url, f"{name}_PORT_9464_TCP_PROTO": "tcp",
        f"{name}_PORT_9464_TCP_PORT": "9464", f"{name}_PORT_9464_TCP_ADDR": address,
    }  # fmt: skip
