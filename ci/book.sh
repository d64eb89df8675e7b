#!/usr/bin/env bash
# The book by mdBook, into the target folder, with the proofs and the READMEs that its pages link to.
# Links in the repository are checked by `xtask tidy`; here each must lead to something in the book.
source "$(dirname "$0")/lib.sh"
if ! have mdbook; then
    skip book "no mdbook"
    exit 0
fi
mkdir -p "$target"
book="$(cd "$target" && pwd)/book"
rm -rf "$book"
mkdir -p "$book/src"
cp docs/book.toml "$book/"
sed -i 's|^src = .*|src = "src"|; s|^build-dir = .*|build-dir = "html"|' "$book/book.toml"
# The pages of docs/ lie at the root of the book, so links from and to them lose that folder.
git ls-files -z 'docs/*.md' 'docs/*.svg' README.md CONTRIBUTING.md \
    'crates/*/README.md' 'crates/*/PROTOCOL*.md' 'examples/*/README.md' |
    while IFS= read -r -d '' file; do
        to="$book/src/${file#docs/}"
        mkdir -p "$(dirname "$to")"
        case "$file" in
        docs/*/*.md) sed 's|](\.\./\.\./|](../|g' "$file" >"$to" ;;
        docs/*.md) sed 's|](\.\./|](|g' "$file" >"$to" ;;
        *.md) sed 's|docs/SUMMARY\.md|what-it-is.md|g; s|](\(\(\.\./\)*\)docs/|](\1|g' "$file" >"$to" ;;
        *) cp "$file" "$to" ;;
        esac
    done

# A page is in the book if it is in the summary: the pages of docs/, then what they link to.
list() {
    local file
    for file in "$@"; do
        printf -- '- [%s](%s)\n' "$(sed -n 's/^# *//p;T;q' "$file")" "$file"
    done
}
{
    printf '\n# Protocols and proofs\n\n'
    list crates/*/PROTOCOL*.md
    printf '\n# Crates and programs\n\n'
    list README.md CONTRIBUTING.md crates/*/README.md examples/*/README.md
} >>"$book/src/SUMMARY.md"
step book mdbook build "$book"

# Every link to a page or a file, as the browser would follow it.
check_links() {
    local page link missing=0
    cd "$book/html"
    while IFS= read -r page; do
        while IFS= read -r link; do
            [ -z "$link" ] || [ -e "$(dirname "$page")/$link" ] || { echo "$page: $link leads nowhere"; missing=1; }
        done < <(grep -o 'href="[^"#:]*["#]' "$page" | sed 's/^href="//; s/.$//')
    done < <(find . -name '*.html' ! -name print.html ! -name 404.html)
    return "$missing"
}
step book-links check_links
