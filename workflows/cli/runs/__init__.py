"""Commands about runs on either engine, and the code behind them."""
