"""studies: reproductions and what-ifs, each with claims that can fail."""
