"""Commands about hosts: their keys, inventories, and who of them is set aside."""
