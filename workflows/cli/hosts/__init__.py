"""Commands about hosts (their keys, inventories, quarantine), and the code behind them."""
