"""No element of a report may fetch anything: what would is replaced by a sentence, links to follow stay."""

import re

from bs4 import BeautifulSoup, Tag

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data: blob:; font-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'; worker-src blob:"
)
FETCHING = ("script", "link", "iframe", "frame", "embed", "object", "img", "image", "source", "video", "audio", "track")
ADDRESSES = ("src", "href", "xlink:href", "data", "poster", "srcset")
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?(?!data:|#)[^)]*\)|@import[^;]*;", re.IGNORECASE)


def without_requests(html: str) -> str:
    """`html` without elements and style rules that point outside the file."""
    soup = BeautifulSoup(html, "html.parser")
    for element in soup.find_all(FETCHING):
        address = _outside(element)
        if address is None:
            continue
        if element.name in ("script", "link"):
            element.decompose()
        else:
            element.replace_with(_substitute(soup, element, address))
    for style in soup.find_all("style"):
        if style.string and CSS_ADDRESS.search(style.string):
            style.string = CSS_ADDRESS.sub("", style.string)
    for element in soup.find_all(style=CSS_ADDRESS):
        element["style"] = CSS_ADDRESS.sub("", str(element["style"]))
    return str(soup)


def _outside(element: Tag) -> str | None:
    for name in ADDRESSES:
        address = element.get(name)
        if isinstance(address, str) and address and not address.startswith(("data:", "#")):
            return address
    return None


def _substitute(soup: BeautifulSoup, element: Tag, address: str) -> Tag:
    note = soup.new_tag("span", attrs={"class": "absent"})
    note.append(f"[{element.get('alt') or element.name} is not part of this file: ")
    where = soup.new_tag("a", href=address) if address.startswith(("http://", "https://")) else soup.new_tag("code")
    where.string = address
    note.append(where)
    note.append("]")
    return note
