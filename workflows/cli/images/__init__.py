"""Commands about node images and their recipes, and the code behind them."""
