"""Write the golden predictions anew and print the line that the changelog needs."""

from tests.golden.predictions import FILE, digest, predictions, write

write(predictions())
print(f"{FILE.name} written; add to CHANGELOG.md, with the reason:\n- [NUMBERS] {digest()}: ...")
