set -e
git init -q -b main
git config user.name Ada
git config user.email ada@example.org
printf '*.log\n' >.gitignore
echo shop >README.md
git add . && git commit -q -m 'Begin'
echo 'tea 3' >prices.txt
git add . && git commit -q -m 'Add the price list'
git reset -q --hard HEAD~1
