"""Sends requests with Python's standard library: a line of JSON for each, and one for its answer."""

import json
import sys
import urllib.error
import urllib.request

for line in sys.stdin:
    asked = json.loads(line)
    request = urllib.request.Request(asked["url"], method=asked["method"], headers=asked["headers"])
    if asked["body"]:
        request.data = asked["body"].encode()
    try:
        answer = urllib.request.urlopen(request, timeout=120)
    except urllib.error.HTTPError as e:
        answer = e
    headers = {name.lower(): value for name, value in answer.headers.items()}
    print(json.dumps({"status": answer.status, "headers": headers, "body": answer.read().decode()}), flush=True)
