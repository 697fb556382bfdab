"""Stage network_operator: pods reach the RDMA fabric through the Network Operator, with the wanted bandwidth."""
