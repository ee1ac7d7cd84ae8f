"""`python -m realrun`, and so `torchrun -m realrun`: the same as the `realrun` script."""

from realrun.cli.main import main

if __name__ == "__main__":
    main()
