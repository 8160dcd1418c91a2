"""Command groups as tables: a command's module is imported when the command is called, and not for a page of help."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from databuild_dagster.feature import Command

#: Commands that a mistyped name may have meant.
MAX_NEAR = 3
#: Words for a command that are not like its name.
SYNONYMS = {
    "backup": "log export --database",
    "clean": "gc --leftovers",
    "delegations": "history --requests",
    "job-runs": "history --job-runs",
}
#: Words for an option that are not like its name.
OPTION_SYNONYMS = {"--deadline": "--sla", "--expires": "--ttl", "--force": "--rebuild"}
#: The names of commands before 0.1 to their names now; 0.2 does not know them any more.
RENAMED = {
    "arc list": "lot list --subscriptions",
    "job-run cancel": "want cancel --job-runs",
    "job-run list": "history --job-runs",
    "job-run show": "show --job-run",
    "ledger list": "history --requests",
    "ledger metrics": "metrics",
    "location forget": "status --forget",
    "location list": "status --locations",
    "log backup": "log export --database",
    "log states": "log events --machines",
    "lot look": "lot arrive --landed",
    "manifest schema": "show --manifest-schema",
    "manifest show": "show --manifest",
    "operation watch": "operation show --watch",
    "outage hold": "pause --needs",
    "outage list": "status --outages",
    "outage release": "resume --needs",
    "publish": "admin publish",
    "receipt": "show --full",
    "spark status": "spark",
    "spark stop": "spark --stop",
    "tick": "admin tick",
    "webserver": "dev --no-daemon",
    "what-if code": "plan --if-new-code",
    "what-if missing": "plan --if-missing",
    "what-if taint": "plan --if-tainted",
}


class Leaf(NamedTuple):
    """A command: its module and function, and the first sentence of its help, which is at most 60 characters long.

    A row `show --full` is a form of the command `show`: with this flag the arguments go to the form, which has options of its own.
    """

    #: "databuild_dagster.cli.build:build".
    target: str
    summary: str


class Branch(NamedTuple):
    """A group of commands."""

    summary: str
    rows: Mapping[str, Leaf]


#: Between the name of a command and the flag of a form.
FORM = " --"
R = TypeVar("R", bound=Leaf | Branch)
#: Section to its commands and groups.
Sections = Mapping[str, Mapping[str, Leaf | Branch]]
#: A table of commands, made when it is asked for.
Table = Callable[[], Sections]


class TableGroup(click.Group):
    """A group whose commands are the rows of tables, in sections.

    A command is looked up table by table, so that the first tables can be cheap. The last table has all rows.
    """

    def __init__(self, *args: Any, tables: Sequence[Table], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._tables = tables

    @property
    def sections(self) -> Sections:
        return self._tables[-1]()

    @property
    def rows(self) -> dict[str, Leaf | Branch]:
        return rows_of(self.sections)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for table in self._tables:
            match rows_of(table()).get(cmd_name):
                case Branch(summary):
                    inner = [partial(_inside, of_group, cmd_name) for of_group in self._tables]
                    return TableGroup(cmd_name, tables=inner, help=summary)
                case Leaf(target):
                    from databuild_dagster.cli.definitions import taking_definitions

                    module, attribute = target.split(":")
                    return taking_definitions(getattr(importlib.import_module(module), attribute))
        return None

    def with_forms(self, name: str, command: click.Command) -> click.Command:
        """The command with a flag for each of its forms, for help, completion and proposals."""
        forms = [(flag, row.summary.rstrip(".")) for path, row in self.rows.items() if (flag := _form_of(name, path))]
        shown = copy(command)
        # A command that passes unknown options on, as `dev` does, is called with these.
        shown.params = command.params + [
            click.Option([flag], is_flag=True, expose_value=False, help=f"{summary}; see {flag} --help.")
            for flag, summary in forms
        ]
        return shown

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of the table: the base class imports every command for its help."""
        names = [name for rows in commands_of(self.sections).values() for name in rows]
        return [CompletionItem(name, help=self.rows[name].summary) for name in names if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names of all sections share a column."""
        sections = commands_of(self.sections)
        width = max(map(len, rows_of(sections)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), row.summary) for name, row in rows.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Names the right place of an option of the command that stands before the command. `help` is `--help`."""
        given = args = [*args[1:], "--help"] if args[:1] == ["help"] else list(args)
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            path, command = self._command_of(ctx, given)
            if any(error.option_name in option.opts for option in command.params):
                right = f"{ctx.command_path} {' '.join(path)} {error.option_name}"
                ctx.fail(f"{error.option_name} is an option of the command. Write it after the command: `{right}`.")
            raise

    def _command_of(self, ctx: click.Context, args: list[str]) -> tuple[list[str], click.Command]:
        """The command that arguments name, also in a group, and its path."""
        path: list[str] = []
        command: click.Command = self
        for name in args:
            if isinstance(command, TableGroup) and (found := command.get_command(ctx, name)) is not None:
                path.append(name)
                command = command.with_forms(name, found)
        return path, command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command with a flag that names a form is this form."""
        name, *rest = args
        command = self.get_command(ctx, name)
        root, *groups = ctx.command_path.split()
        path = " ".join([*groups, name])
        if renamed := _renamed(path, "".join(rest[:1]), is_gone=command is None):
            now = [f"`{root} {old}` is now `{root} {new}`" for old, new in renamed.items()]
            ctx.fail(f"{', and '.join(now)}.")
        if command is None and not name.startswith("-"):
            near = " or ".join(f"`{ctx.find_root().info_name} {path}`" for path in self._near(ctx, name))
            ctx.fail(f"There is no command `{ctx.command_path} {name}`.{f' Did you mean {near}?' if near else ''}")
        if command is None:
            return super().resolve_command(ctx, args)
        given = rest[: rest.index("--")] if "--" in rest else rest
        known = {name for param in command.params for name in param.opts}
        flags = [word for word in given if word.startswith("-") and word not in known]
        for flag in flags:
            if (form := f"{name} {flag}") in self.rows:
                rest.remove(flag)
                return form, self.get_command(ctx, form), rest
        return name, self.with_forms(name, command) if flags or ctx.resilient_parsing else command, rest

    def _near(self, ctx: click.Context, name: str) -> list[str]:
        """A synonym, the same name elsewhere, the list of a group's plural, else names like it here, else elsewhere.

        A name that several other groups have means the commands of this group.
        """
        root = ctx.find_root().command
        paths = list(_paths(root.rows)) if isinstance(root, TableGroup) else []
        if (meant := SYNONYMS.get(name)) is not None and _words_of(meant) in paths:
            return [meant]
        own = ctx.command_path.split()[1:]
        here = [" ".join(path) for path in paths if path[:-1] == own]
        if same := [" ".join(path) for path in paths if path[-1] == name]:
            return (here if own and len(same) > 1 else same)[:MAX_NEAR]
        if (listed := [name.removesuffix("s"), "list"]) in paths:
            return [" ".join(listed)]
        import difflib  # Most commands exist.

        for near in ([path for path in paths if path[:-1] == own], paths):
            by_name = {path[-1]: " ".join(path) for path in near}
            if found := difflib.get_close_matches(name, by_name, n=MAX_NEAR):
                return [by_name[each_name] for each_name in found]
        return []


def rows_of(sections: Sections) -> dict[str, Leaf | Branch]:
    """The commands and groups of all sections."""
    return {name: row for rows in sections.values() for name, row in rows.items()}


def commands_of(sections: Sections) -> Sections:
    """The sections without the forms of commands."""
    return {title: {name: row for name, row in rows.items() if FORM not in name} for title, rows in sections.items()}


def inserted(sections: Sections, commands: Iterable[Command]) -> Sections:
    """The tables of the core with the commands of features, each after the command that its row names.

    A row that names no command, or a missing command, comes last in its section or group.
    """
    found: dict[str, dict[str, Leaf | Branch]] = {title: dict(rows) for title, rows in sections.items()}
    for command in commands:
        path, is_form, flag = command.name.partition(FORM)
        group, _, name = path.rpartition(" ")
        name = f"{name}{is_form}{flag}"
        of_form = next((title for title, rows in found.items() if path.split()[0] in rows), "")
        section = command.section or of_form
        rows = found.setdefault(section, {})
        leaf = Leaf(command.target, command.summary)
        branch = rows.get(group)
        if isinstance(branch, Branch):
            rows[group] = branch._replace(rows=_with(branch.rows, name, leaf, command))
        elif group:
            found[section] = _with(rows, group, Branch(command.group, {name: leaf}), command)
        else:
            found[section] = _with(rows, name, leaf, command)
    return found


def _with(rows: Mapping[str, R], name: str, row: R, command: Command) -> dict[str, R]:
    """The rows and `row`, at the place that the command's row names. Raises `InvalidFeature` for a name that is taken."""
    names = list(rows)
    if name in names:
        from databuild_dagster.feature import InvalidFeature

        raise InvalidFeature(
            f"A feature adds the command `{command.name}`, which exists already; give it another name."
        )
    place = len(names)
    if command.after == command.section:
        place = 0
    elif command.after in names:
        place = names.index(command.after) + 1
    names.insert(place, name)
    return {listed: row if listed == name else rows[listed] for listed in names}


def _inside(table: Table, group: str) -> Sections:
    """The table of a group; without rows where the table does not have the group."""
    row = rows_of(table()).get(group)
    return {"Commands": row.rows if isinstance(row, Branch) else {}}


def with_synonym(error: click.ClickException) -> click.ClickException:
    """The error of an unknown option, with the option of its command that has this meaning; any other error unchanged."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    meant = OPTION_SYNONYMS.get(error.option_name)
    if meant is None or all(meant not in option.opts for option in error.ctx.command.params):
        return error
    message = f"No such option '{error.option_name}'. Did you mean '{meant}'?"
    return click.NoSuchOption(error.option_name, message, ctx=error.ctx)


def _form_of(name: str, path: str) -> str:
    """The flag of a row that is a form of the command; empty for any other row."""
    return path.removeprefix(f"{name} ") if path.startswith(f"{name}{FORM}") else ""


def _renamed(path: str, following: str, *, is_gone: bool) -> dict[str, str]:
    """The new name of an earlier command, or the new names of the commands of a group that is gone."""
    old = f"{path} {following}"
    if old in RENAMED:
        return {old: RENAMED[old]}
    return {old: new for old, new in RENAMED.items() if is_gone and f"{old} ".startswith(f"{path} ")}


def _words_of(command: str) -> list[str]:
    """The path of a command that is written with options."""
    return [word for word in command.split() if not word.startswith("-")]


def _paths(rows: Mapping[str, Leaf | Branch]) -> Iterator[list[str]]:
    for name, row in rows.items():
        yield [name]
        if isinstance(row, Branch):
            yield from ([name, *path] for path in _paths(row.rows))
