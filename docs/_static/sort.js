// A click on a heading of a table sorts its rows, a second click turns the order round.
document.addEventListener("click", (event) => {
  const heading = event.target.closest("article table.docutils thead th");
  if (!heading) return;
  const column = heading.cellIndex, body = heading.closest("table").tBodies[0];
  const order = heading.dataset.order === "up" ? -1 : 1;
  heading.dataset.order = order === 1 ? "up" : "down";
  const text = (row) => row.cells[column].textContent.trim();
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  body.append(...[...body.rows].sort((a, b) => order * compare(text(a), text(b))));
});
