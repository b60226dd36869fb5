"""The report as Markdown."""
import math


def shown(x):
    if x is None:
        return "-"
    if not math.isfinite(x):
        return str(x)
    return f"{x:.3f}" if x < 1000 else f"{x:.2e}"


def markdown_table(head, lines):
    align = [":---" if left else "---:" for _, left in head]
    out = ["| " + " | ".join(title for title, _ in head) + " |", "|" + "|".join(align) + "|"]
    return out + ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def class_table(rows):
    head = [("class", True), ("k", False), ("N", False), ("error, emulated", False), ("promise T + 1", False), ("error, native", False), ("path", True)]
    lines = []
    for r in rows:
        emulated = r["route"] in ("emulated", "plain")
        path = r["path"] + (f"; {r['broken']} ENTRIES BEYOND THEIR BOUND" if r["broken"] else "")
        lines.append([r["name"], r["k"], r["moduli"] or "-", shown(r["error_emulated"]) if emulated else "-", shown(r["promise"]) if r["checked"] else "-",
                      shown(r["error_native"]), path])
    return markdown_table(head, lines)


def detector_table(results):
    head = [("test", True), ("passed", True), ("found", True), ("path", True)]
    return markdown_table(head, [[r["name"], "yes" if r["passed"] else "NO", r["text"], r["paths"]] for r in results])


def least_table(least):
    head = [("class", True), ("k", False), ("N of auto", False), ("least N", False)]
    return markdown_table(head, [[one["name"], one["k"], one["auto"] or "-", one["least"] or "-"] for one in least])


def markdown(report, picture):
    lines = ["# Accuracy", "",
             f"Largest error over all entries of a {report['m']} x {report['n']} product with inner dimension k, in units of u |A||B| of the entry (u = 2^-53), computed",
             "exactly; no entry is left out. The promise is T + 1 for the entry with the most terms; each entry was held to its own, and to 2^-1075 beside it,",
             "which is taken from the error before the division. Rows and columns that the library computed natively were held to k u |A||B|; their errors are",
             "not in the column of the emulated ones.", ""]
    if picture:
        lines += ["![Error against the number of moduli and against the spread](accuracy.svg)", ""]
    if report["rows"]:
        lines += ["## Classes of input", "", "`tests/grading/inputs.py` says what each class is and where it comes from.", "", *class_table(report["rows"]), ""]
    if report["detectors"]:
        lines += ["## Classical floating point?", "", "`tests/grading/detectors.py`: tests that fixed-point arithmetic or Strassen-like algorithms fail.", "",
                  *detector_table(report["detectors"]), ""]
    if report["least"]:
        lines += ["## N against the least N", "", "Products of {} x {} entries: the N of mode auto, and the least N with which the mode accurate keeps the promise".format(*report["least_shape"]),
                  "on these data, judged by its exact errors, which no plan can know.", "",
                  *least_table(report["least"]), ""]
    lines += ["## Found wanting", "", *[f"- {text}" for text in report["failures"]], ""] if report["failures"] else []
    lines += [f"Library: {report['library']}, accuracy {report['accuracy']}, engine {', '.join(report['engines']) or '-'}. Native: {report['native']}.",
              f"Machine: {report['machine']}. Date: {report['date']}. Command: `{report['command']}` ({report['seconds']:.0f} s).", ""]
    return "\n".join(lines)
