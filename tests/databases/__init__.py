"""Private database servers for the tests, made when a test first asks for one, and a proxy to cut what goes to them."""
