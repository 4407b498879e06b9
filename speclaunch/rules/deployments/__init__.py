"""What stands around a server: probes, image, pod, Services, routers, ranks on several hosts."""
