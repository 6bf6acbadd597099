"""What grants allow besides reading."""

import pytest

from tally.app.doctor.console import changing


@pytest.mark.parametrize(
    ("grant", "further"),
    [
        ("GRANT USAGE ON *.* TO `c`@`%`", []),
        ("GRANT SELECT ON `tally`.* TO `c`@`%`", []),
        ("GRANT SELECT, SHOW VIEW ON `tally`.* TO `c`@`%`", []),
        ("GRANT SELECT (`a`, `b`) ON `tally`.`batch` TO `c`@`%`", []),
        ("GRANT SELECT, INSERT ON `tally`.* TO `c`@`%`", ["INSERT on `tally`.*"]),
        ("GRANT SELECT (`a`), UPDATE (`b`) ON `t`.`x` TO `c`@`%`", ["UPDATE on `t`.`x`"]),
        ("GRANT ALL PRIVILEGES ON *.* TO `c`@`%`", ["ALL PRIVILEGES on *.*"]),
        ("GRANT EXECUTE ON PROCEDURE `t`.`p` TO `c`@`%`", ["EXECUTE on PROCEDURE `t`.`p`"]),
        ("GRANT `writer`@`%` TO `c`@`%`", ["the role `writer`@`%`"]),
        ("GRANT PROXY ON ''@'' TO 'c'@'%'", ["PROXY on ''@''"]),
        (
            "GRANT SELECT ON `t`.* TO `c`@`%` WITH GRANT OPTION",
            ["with grant option on `t`.*"],
        ),
        ("GRANT USAGE ON *.* TO `c`@`%` WITH MAX_USER_CONNECTIONS 5", []),
        ("REVOKE SELECT ON `mysql`.* FROM `c`@`%`", []),
        ("SET DEFAULT ROLE NONE TO `c`@`%`", []),
        ("GRANT `r`@`%` TO `c`@`%` WITH ADMIN OPTION", ["the role `r`@`%`"]),
        ("something new", ["something new"]),
    ],
)
def test_only_reading_is_harmless(grant: str, further: list[str]) -> None:
    """What is not understood counts as more."""
    assert list(changing([grant])) == further
