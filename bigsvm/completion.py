"""Print a shell's completion of commands, options and config keys: bigsvm completion bash."""

import importlib
import sys
from argparse import Action, Namespace
from collections.abc import Iterator, Sequence

from bigsvm import cli

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """examples:
  source <(bigsvm completion bash)                            in ~/.bashrc
  source <(bigsvm completion zsh)                             in ~/.zshrc, after compinit
  bigsvm completion fish > ~/.config/fish/completions/bigsvm.fish
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.completion",
        "Print a script that completes the commands of `bigsvm` in a shell.",
        EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser.parse_args(argv)


def options_of(command: str) -> list[Action]:
    """The options of a command."""
    module = importlib.import_module(f"bigsvm.{command}")
    with cli.Arguments.described() as parsers:
        module.parse_arguments([])
    return [action for action in parsers[0]._actions if action.option_strings]


def config_keys() -> list[str]:
    """The keys that --set takes."""
    from pydantic import BaseModel

    from bigsvm.config import Config

    def below(section: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in section.model_fields.items():
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
            for kind in inner:
                yield from below(kind, f"{prefix}{name}.")
            if len(inner) < len([k for k in kinds if k is not type(None)]) or not inner:
                yield f"{prefix}{name}"

    sections = set(Config.model_fields)
    return [key for key in dict.fromkeys(below(Config, "")) if key not in sections]


def bash() -> str:
    """The script for bash; zsh runs it, too."""
    cases, values = [], {}
    for command in cli.COMMANDS:
        options = options_of(command)
        words = " ".join(name for option in options for name in option.option_strings)
        cases.append(f'        {command}) options="{words}" ;;')
        for option in options:
            if option.choices is not None:
                choices = " ".join(map(str, option.choices))
                values[f"{command}:{option.option_strings[-1]}"] = choices
    keys = " ".join(f"{key}=" for key in config_keys())
    chosen = "\n".join(f'        {key}) values="{found}" ;;' for key, found in values.items())
    nested = "\n".join(cases)
    return f"""_bigsvm() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local command="${{COMP_WORDS[1]}}" options="" values=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(cli.COMMANDS)} help --version" -- "$word"))
        return
    fi
    case "$command:$before" in
{chosen}
        completion:completion) values="{" ".join(SHELLS)}" ;;
        help:help) values="{" ".join(cli.COMMANDS)}" ;;
        *:--set)
            compopt -o nospace 2>/dev/null
            values="{keys}" ;;
    esac
    if [ -n "$values" ]; then
        COMPREPLY=($(compgen -W "$values" -- "$word"))
        return
    fi
    case "$command" in
{nested}
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -F _bigsvm bigsvm
"""


def zsh() -> str:
    """The script for zsh."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash()}"


def fish() -> str:
    """The script for fish."""
    lines = []
    for command, purpose in cli.COMMANDS.items():
        lines.append(
            f"complete -c bigsvm -f -n __fish_use_subcommand -a {command} -d {_quoted(purpose)}"
        )
        for option in options_of(command):
            names = [
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.option_strings
            ]
            takes = "" if option.nargs == 0 else " -r"
            if option.choices is not None:
                takes = f" -x -a {_quoted(' '.join(map(str, option.choices)))}"
            elif option.dest == "set":
                takes = f" -x -a {_quoted(' '.join(f'{key}=' for key in config_keys()))}"
            lines.append(
                f"complete -c bigsvm -n '__fish_seen_subcommand_from {command}' {' '.join(names)}"
                f"{takes} -d {_quoted(option.help or '')}"
            )
    shells = f"'__fish_seen_subcommand_from completion' -a {_quoted(' '.join(SHELLS))}"
    return "\n".join([*lines, f"complete -c bigsvm -f -n {shells}"]) + "\n"


def _quoted(text: str) -> str:
    """Text in single quotes, as fish reads it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.completion`."""
    arguments = parse_arguments(argv)
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](), end="")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
