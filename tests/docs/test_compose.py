"""Test the file for Docker of docs/howto/team.md: it has what the page describes, and no secret. No test starts
Docker.
"""

import re

import pytest
import yaml

from pipelines.cli.pages import ROOT
from tests.test_skips import LOCK

HOWTO = ROOT / "docs/howto"
TEXT, PAGE = (HOWTO / "compose.yaml").read_text("utf-8"), (HOWTO / "team.md").read_text("utf-8")
SERVICES = yaml.safe_load(TEXT)["services"]


def test_the_page_has_its_images_and_ports():
    images = [service["image"] for service in SERVICES.values() if "image" in service]
    ports = [port.partition(":")[0] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(images) == 2 and len(ports) == 2
    assert [each for each in [*images, *ports] if f"`{each}`" not in PAGE] == []


def test_the_server_is_of_the_versions_of_the_lock():
    installed = re.findall(r"(\S+==\S+)", SERVICES["mlflow"]["build"]["dockerfile_inline"])
    assert len(installed) == 5 and {*installed} <= {*LOCK.splitlines()}


def test_services_name_each_other_and_their_volumes():
    volumes = {each.partition(":")[0] for service in SERVICES.values() for each in service.get("volumes", [])}
    assert {*SERVICES["mlflow"]["depends_on"]} <= {*SERVICES} and volumes == {*yaml.safe_load(TEXT)["volumes"]}
    assert "@postgres:5432/" in TEXT and "http://s3:7070" in TEXT


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_secrets_come_from_the_environment(name):
    assert f"${{{name}:?is not set}}" in TEXT and f"export {name}=…" in PAGE.replace(" AWS", " export AWS")
