"""Roles of which a stack needs many, and policies that they share."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct


class InlineRole(iam.Role):
    """A role that contains its permissions, while the CDK adds a policy to other roles: a second resource.

    A stack may have 500 resources, and every pipeline has roles of its own. Permissions of more than 10,240 characters
    do not fit; the CDK divides those of other roles into several policies.
    """

    def __init__(self, scope: Construct, id_: str, *, assumed_by: iam.IPrincipal, description: str) -> None:
        self._permissions = iam.PolicyDocument()
        super().__init__(
            scope,
            id_,
            assumed_by=assumed_by,
            description=description,
            inline_policies={"Permissions": self._permissions},
        )

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """Add a permission. Its dependable is this role."""
        self._permissions.add_statements(statement)
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=self)

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        """Add a permission; always returns True."""
        return self.add_to_principal_policy(statement).statement_added


class SharedPolicy(iam.ManagedPolicy):
    """Permissions that many roles have, written into the template once: it may have 1 MB."""

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> None:
        """Add a permission, as a role does."""
        self.add_statements(statement)


Grantee = iam.IRole | SharedPolicy
"""Who gets permissions."""
