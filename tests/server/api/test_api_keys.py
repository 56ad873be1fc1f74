"""Keys of people: shown once, listed without their secrets, revoked for good."""

from __future__ import annotations

from tests.factories.live_coordinator import Live, code_of


def test_api_keys_rotate_with_an_overlap(here: Live) -> None:
    made = here.operator("POST", "/v1/api-keys", json={"role": "viewer", "name": "second"})
    assert made.status_code == 201
    new = made.json()
    assert here.send("GET", "/v1/studies", new["key"]).status_code == 200
    listed = here.operator("GET", "/v1/api-keys").json()["keys"]
    assert new["id"] in {key["id"] for key in listed}
    assert all(key["key"] is None for key in listed)
    for _ in range(2):
        assert here.operator("DELETE", f"/v1/api-keys/{new['id']}").json()["revoked_at"] is not None
    assert code_of(here.send("GET", "/v1/studies", new["key"])) == (401, "bad-token")
    assert code_of(here.operator("DELETE", "/v1/api-keys/none")) == (404, "unknown-key")


def test_a_viewer_neither_makes_nor_sees_keys(here: Live) -> None:
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", "/none")):
        json = {"role": "administrator", "name": "Ada"} if method == "POST" else None
        answer = here.send(method, f"/v1/api-keys{path}", here.viewer_key, json=json)
        assert code_of(answer) == (403, "forbidden")
