"""Figures and tables of the papers, as printed and as corrected: one module per paper, one `Figure` per picture.

`python -m reproduction figure list | NAME... | all` runs them; `make papers` rewrites docs/papers and docs/img/papers.

**A paper is a module of this package that defines** (found by walking the package; files with `_` are helpers)

    PAPER: Paper                 title, authors, year, the algorithms whose errata belong to it, two lines of summary
    FIGURES: tuple[Figure, ...]  in the paper's order

**A figure** is `Figure(name, title, panels, make, setup=..., differs=..., ...)`. Its slug is MODULE-NAME with `_` as
`-`, such as `xiao-fig2`. `make(study) -> Result` computes everything, from cached parts:

    def curves(study, *, agents, edges, seeds):        # a part: a module-level function of plain, JSON-able settings
        plan = validate({...})                         # plans, prepare / settle / price, theory: the public API only
        trace = study.simulate(experiment, priced, seeds)          # like experiment.run; Ctrl-C is never half a result
        return {"error": trace_errors}                 # {name: number, text or array of numbers}

    def make(study):
        found = study.part(curves, agents=10, edges=20, seeds=study.seeds)     # stored; arrays come back as NumPy
        lines = [Series.over("a", "Algorithm 1", "as printed", rounds, found["error"])]   # (seeds, points) -> band
        claims = [Claim("the error falls", found["error"][-1] < ..., "from 1.2 to 0.3", {"first": 1.2, "last": 0.3})]
        return Result(lines, claims, [Budget(...)])

- A part is stored under its function's code, its settings and the package version, so a run that was cut off goes on
  where it was and a changed part is computed anew; `--fresh` forgets all. Split long work into several parts. What a
  part calls is not in the key: after changing a helper use `--fresh`.
- `study.quick`: the everyday version, under 20 seconds a figure with compilation; `study.pick(full, quick)` chooses
  sizes. `study.seeds` is 10, or 3 if quick. Seeds are 0 … seeds − 1: no other randomness.
- `Series.version` is one of `VERSIONS`: `as printed` (the paper's noise and claimed ε), `true ε` (the printed run under
  correct accounting), `corrected` (the claimed ε with the right noise), `theory` (a bound or a closed form),
  `reference` (no privacy). A version that does not differ is left out. Style follows the version, colour the label.
- A `Claim` holds what was found: True or False, or an `Outcome` for each choice of what the paper leaves open
  (`Figure.left_open`); `reproduction.verdicts` makes *holds*, *fails* or *cannot be decided* of them, by one rule. One
  that fails should say why (`reason`, `section`); a test insists on it for committed verdicts. `always`: said of every
  setting. `who="paper"` is what the paper says of its figure, `who="ours"` what this project says of it. `value` holds
  the numbers that decide, `measured` says them in words.
- `Budget` rows tell what a run claims and what it costs.
- `needs=("adult",)` names data sets of `coterie.data`, or a file such as "ipums-us.csv" that the user puts into
  `COTERIE_DATA` (`supply` then says what it must hold). Without them the figure is skipped and says so (exit code 2).
- `panels` describe axes; series name the panel they belong to. `draw(figure, result)` replaces the standard drawing
  where axes alone do not do; it gets an empty matplotlib figure of `size` inches. `tables` of a result go on the page.
- `setup` and `differs` are paragraphs for the page; line breaks in them do not matter.

Pictures and verdicts of full runs are committed (docs/img/papers, docs/papers/verdicts); the pages are made from them.
"""
