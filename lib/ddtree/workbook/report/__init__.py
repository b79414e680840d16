"""Export executed notebooks as single HTML files without network requests, and list runs on one page."""
