// Tables are sorted by a click on a heading; without scripts they stay as they are, by time.
for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") !== "descending";
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[heading.cellIndex].dataset.v ?? row.cells[heading.cellIndex].textContent;
      const order = (a, b) => isNaN(a) || isNaN(b) ? String(a).localeCompare(b) : a - b;
      const rows = [...table.tBodies[0].rows].sort((a, b) => order(key(a), key(b)));
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    });
  }
}
