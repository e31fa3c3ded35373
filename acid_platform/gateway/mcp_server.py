"""MCP, by the official SDK: an agent's calls of tools, over stdin and stdout or as HTTP requests.

Over HTTP each request stands alone (the SDK's stateless mode with JSON answers) and comes through
the catalog's port, with its logins, TLS and limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acid_platform import __version__
from acid_platform.errors import AcidError, UnsupportedStatement

try:
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
        TextContent,
        ToolAnnotations,
    )
    from mcp.types import Tool as ListedTool
except ImportError as error:
    raise UnsupportedStatement(
        "MCP needs the package mcp: pip install 'acid-platform[gateway,mcp]'"
    ) from error
from acid_platform.gateway.agent_tools import TOOLS, AgentTools
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.rest_catalog import CatalogAnswer


def serve_stdio(tools: AgentTools) -> None:
    """Serves one agent until stdin ends, with the rights of who has started this process."""

    async def run() -> None:
        server = _server(tools, Caller("stdin"))
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    anyio.run(run)


def answer_http(
    tools: AgentTools, headers: Mapping[str, str], body: bytes, caller: Caller
) -> CatalogAnswer:
    """The answer to one request, a POST."""
    return anyio.run(_exchanged, tools, headers, body, caller)


async def _exchanged(
    tools: AgentTools, headers: Mapping[str, str], body: bytes, caller: Caller
) -> CatalogAnswer:
    started, parts = dict[str, Any](), list[bytes]()
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not received:
            await anyio.sleep_forever()  # the client waits for the answer
        return received.pop()

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    manager = StreamableHTTPSessionManager(
        _server(tools, caller), json_response=True, stateless=True
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return CatalogAnswer(int(started["status"]), b"".join(parts))


def _server(tools: AgentTools, caller: Caller) -> Server[Any]:
    async def listed(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[*map(_listed, TOOLS)])

    async def called(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            found = tools.call(params.name, params.arguments or {}, caller)
        except AcidError as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        text = json.dumps(found, default=str)
        return CallToolResult(content=[TextContent(text=text)], structured_content=found)

    return Server("acid", version=__version__, on_list_tools=listed, on_call_tool=called)


def _listed(name: str) -> ListedTool:
    tool = TOOLS[name]
    properties = {argument: {"type": kind} for argument, kind in tool.arguments.items()}
    schema = {"type": "object", "properties": properties, "required": [*tool.required]}
    return ListedTool(
        name=name,
        description=tool.about,
        input_schema={**schema, "additionalProperties": False},
        annotations=ToolAnnotations(read_only_hint=True),
    )
