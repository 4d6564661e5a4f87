"""Published bypasses of guards for outgoing requests, and URLs that must pass.

Gathered from:

- PayloadsAllTheThings, "Server Side Request Forgery": README.md and SSRF-Cloud-Instances.md (swisskyrepo)
- SSRF-Testing: README.md, ip.py and cloud-metadata.txt (cujanovic)
- OWASP Cheat Sheet Series, "Server-Side Request Forgery Prevention", and the list of private ranges in it
- Orange Tsai, "A New Era of SSRF: Exploiting URL Parser in Trending Programming Languages" (Black Hat USA 2017)
- Nicolas Grégoire, "Server-side browsing considered harmful" (AppSec EU 2015)
- IANA's registries of special-purpose addresses, IPv4 and IPv6; RFC 4291, 4380, 6052, 6761, 8215

`DNS` holds the addresses of names; any other name has a public address, so that no URL is refused only because a
lookup fails.
"""
# ruff: noqa: RUF001 - some cases are about characters that look like others

PUBLIC = "93.184.215.14"

DNS = {
    "localhost": ["127.0.0.1", "::1"],
    "localtest.me": ["127.0.0.1"],
    "lvh.me": ["::1"],
    "spoofed.burpcollaborator.net": ["127.0.0.1"],
    "mail.ebc.apple.com": ["127.0.0.6"],
    "bugbounty.dod.network": ["127.0.0.2"],
    "customer1.app.localhost.my.company.127.0.0.1.nip.io": ["127.0.0.1"],
    "127.127.127.127.nip.io": ["127.127.127.127"],
    "169.254.169.254.nip.io": ["169.254.169.254"],
    "app-169-254-169-254.nip.io": ["169.254.169.254"],
    "owasp.org.169.254.169.254.nip.io": ["169.254.169.254"],
    "1ynrnhl.xip.io": ["169.254.169.254"],
    "www.owasp.org.1ynrnhl.xip.io": ["169.254.169.254"],
    "ssrf-cloud.localdomain.pw": ["169.254.169.254"],
    "make-1.2.3.4-rebind-169.254-169.254-rr.1u.ms": ["1.2.3.4", "169.254.169.254"],
    "first-public.example": [PUBLIC, "10.0.0.5"],
    "first-private.example": ["10.0.0.5", PUBLIC],
    "six.example": ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "translated.example": ["64:ff9b::a9fe:a9fe"],
    "metadata-six.example": ["fd00:ec2::254"],
    "scoped.example": ["fe80::1%1"],
}

REFUSED = {
    "loopback": [
        "http://127.0.0.1:80", "http://127.0.0.1:443", "http://127.0.0.1:22", "https://127.0.0.1/",
        "http://127.127.127.127", "http://127.0.1.3", "http://127.0.0.0", "http://127.255.255.255/",
        "http://127.0.0.1/%61dmin", "http://127.0.0.1:2375/v1.24/containers/json",
        "http://127.0.0.1:2379/v2/keys/?recursive=true", "http://[::1]/", "http://[0:0:0:0:0:0:0:1]:80/",
        "http://[0000::1]:80/", "http://0000::1:80/", "sftp://127.0.0.1/",
    ],
    "this host": [
        "http://0.0.0.0:80", "http://0.0.0.0:443", "http://0/", "http://0.1.2.3/", "http://[::]:80/", "http://[::]:25/",
        "http://[0:0:0:0:0:0:0:0]/",
    ],
    "names of this host, of its network and of clouds": [
        "http://localhost:80", "https://localhost/", "http://LOCALHOST/", "http://localhost.localdomain/",
        "http://app.localhost/", "http://ip6-localhost/", "http://localhost:9001/2018-06-01/runtime/invocation/next",
        "http://instance-data/latest/meta-data/", "http://metadata/computeMetadata/v1/",
        "http://metadata.google.internal/computeMetadata/v1/", "http://METADATA.google.INTERNAL/computeMetadata/v1/",
        "http://metadata.tencentyun.com/latest/meta-data/", "https://metadata.packet.net/userdata",
        "http://rancher-metadata/latest/", "http://ip-10-0-0-5.ec2.internal/",
        "http://kubernetes.default.svc.cluster.local/", "http://router.home.arpa/",
    ],
    "clouds' metadata": [
        "http://169.254.169.254/latest/meta-data/", "http://169.254.169.254/computeMetadata/v1/",
        "http://169.254.169.254/metadata/v1/maintenance", "http://169.254.169.254/openstack",
        "http://169.254.169.254/opc/v1/instance/", "http://169.254.169.254/hetzner/v1/metadata",
        "http://169.254.170.2/v2/credentials/", "http://[fd00:ec2::254]/latest/meta-data/",
        "http://[fd00:ec2::23]/v1/credentials", "http://192.0.0.192/latest/",
        "http://100.100.100.200/latest/meta-data/", "http://[fe80::a9fe:a9fe]/",
    ],
    "private": [
        "http://10.0.0.1/", "http://10.255.255.255/", "http://172.16.0.1/", "http://172.31.255.255/",
        "http://192.168.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://100.127.255.255/",
        "http://[fc00::1]/", "http://[fd12:3456:789a::1]/", "http://[fec0::1]/", "sftp://10.0.0.1/",
    ],
    "not for single public servers": [
        "http://169.254.0.1/", "http://192.0.0.8/", "http://192.0.2.1/", "http://198.51.100.1/", "http://203.0.113.1/",
        "http://198.18.0.1/", "http://198.19.255.255/", "http://192.88.99.1/", "http://224.0.0.1/",
        "http://239.255.255.250:1900/", "http://240.0.0.1/", "http://255.255.255.255/", "http://[ff02::1]/",
        "http://[2001:db8::1]/", "http://[3fff::1]/", "http://[100::1]/", "http://[5f00::1]/", "http://[4000::1]/",
        "http://[2001:2::1]/", "http://[2001:10::1]/",
    ],
    "IPv4 inside of IPv6": [
        "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:a9fe:a9fe]",
        "http://[0:0:0:0:0:ffff:127.0.0.1]", "http://[0:0:0:0:0:ffff:a9fe:a9fe]",
        "http://[0:0:0:0:0:ffff:169.254.169.254]", "http://[::FFFF:10.0.0.1]/", "http://[::ffff:93.184.215.14]/",
        "http://[::127.0.0.1]/", "http://[::169.254.169.254]:80/", "http://[64:ff9b::127.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::10.0.0.1]/", "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:7f00:1::]/",
        "http://[2001:0:5db8:d70e:0:0:80ff:fffe]/",
    ],
    "scopes": [
        "http://[fe80::1%eth0]/",
        "http://[fe80::1%25eth0]/",
        "http://[::1%25lo]/",
        "http://[::1%lo]:80/",
    ],
    "other spellings of an IPv4 address": [
        "http://2130706433/", "http://3232235521/", "http://3232235777/", "http://2852039166/", "http://7147006462",
        "http://425.510.425.510", "http://127.1", "http://127.0.1", "http://0x7f.1", "http://0x7f000001/",
        "http://0x7f.0x0.0x0.0x1/", "http://0X7F.0.0.0X1/", "http://0177.0.0.1/", "http://0177.0.0.01/",
        "http://017700000001/", "http://o177.0.0.1/", "http://0o177.0.0.1/", "http://q177.0.0.1/",
        "http://0xA9.0xFE.0xA9.0xFE", "http://0xA9FEA9FE", "http://0x41414141A9FEA9FE", "http://0251.0376.0251.0376",
        "http://0251.00376.000251.0000376", "http://0251.254.169.254", "http://0251.0xfe.43518/",
        "http://0xa9.16689662/", "http://169.16689662/", "http://169.254.43518/", "http://93.184.55054/",
        "http://127.0.0.1.1/", "http://127.000.000.001/", "http://256.256.256.256/", "http://0x/", "http://example.0x/",
        "http://example.1/",
    ],
    "dots at the end, and none where one belongs": [
        "http://127.0.0.1./", "http://localhost./", "http://169.254.169.254./latest/", "http://files.example./",
        "http://.files.example/", "http://files..example/", "http://./",
    ],
    "other alphabets": [
        "http://①②⑦.⓪.⓪.①/", "http://１２７.０.０.１/", "http://๑๒๗.๐.๐.๑/", "http://169。254。169。254/",
        "http://169｡254｡169｡254/", "http://127．0．0．1/", "http://⑯⑨。②⑤④。⑯⑨｡②⑤④/", "http://⓪ⓧⓐ⑨｡⓪ⓧⓕⓔ｡⓪ⓧⓐ⑨｡⓪ⓧⓕⓔ:80/",
        "http://⓪ⓧⓐ⑨ⓕⓔⓐ⑨ⓕⓔ:80/", "http://②⑧⑤②⓪③⑨①⑥⑥:80/", "http://④②⑤｡⑤①⓪｡④②⑤｡⑤①⓪:80/",
        "http://⓪②⑤①。⓪③⑦⑥。⓪②⑤①。⓪③⑦⑥:80/", "http://[::①⑥⑨｡②⑤④｡⑯⑨｡②⑤④]:80/", "http://[::ⓕⓕⓕⓕ:①⑥⑨。②⑤④。⑯⑨。②⑤④]:80/",
        "http://ⓔⓧⓐⓜⓟⓛⓔ.ⓒⓞⓜ", "http://ℓocalhost/", "http://locaⅼhost/", "http://ｌｏｃａｌｈｏｓｔ/", "http://local\u00adhost/",
        "http://127.0.0.1\u200b/", "http://files.example\uff03@127.0.0.1/", "http://files.example\u2044@127.0.0.1/",
        "http://files.example\u2100/",
    ],
    "percent-encoded hosts": [
        "http://%31%32%37.0.0.1/", "http://127%2e0%2e0%2e1/", "http://%6c%6f%63%61%6c%68%6f%73%74/",
        "http://127.0.0.1%00.files.example/", "http://127.0.0.1%2f.files.example/",
        "http://files.example%23@127.0.0.1/", "http://%5b::1%5d/",
    ],
    "credentials, and whatever looks like them": [
        "http://good@127.0.0.1/", "http://files.example@127.0.0.1/", "http://files.example:80@127.0.0.1:80/",
        "http://127.0.0.1@files.example/", "https://user:secret@files.example/", "https://:secret@files.example/",
        "https://@files.example/", "http://google.com:80+&@127.88.23.245:22/#+@google.com:80/",
        "http://127.88.23.245:22/+&@google.com:80#+@google.com:80/",
        "http://google.com:80+&@google.com:80#+@127.88.23.245:22/", "http://127.88.23.245:22/?@google.com:80/",
        "http://127.88.23.245:22/#@www.google.com:80/", "http://127.1.1.1:80#\\@127.2.2.2:80/",
        "http://127.1.1.1:80\\@127.2.2.2:80/", "http://127.1.1.1:80\\@@127.2.2.2:80/",
        "http://127.1.1.1:80:\\@@127.2.2.2:80/", "http://1.1.1.1 &@2.2.2.2# @3.3.3.3/", "http://1.1.1.1&@2.2.2.2/",
        "https://foo@evil.com:80@www.google.com/", "https://foo@127.0.0.1 @www.google.com/",
    ],
    "backslashes, spaces and control characters": [
        "http:\\\\127.0.0.1\\", "http:/\\127.0.0.1/", "http://files.example\\.127.0.0.1.nip.io/",
        "http://google.com:80\\\\@127.88.23.245:22/", "http://127.0.0.1\t/", "ht\ntp://127.0.0.1/",
        "http://127.0.0.1\r\nHost: files.example/", "http://files.example/\r\nX-Injected: 1",
        "http://files.example:80\r\nSET x 1\r\n/", " http://files.example/", "http://files.example/ ",
        "http://files.example/\x00", "http://files.example\x7f/", "\x01http://files.example/",
        "http://127.0.0.1\u00a0/",
    ],
    "other schemes": [
        "file:///etc/passwd", "file://\\/\\/etc/passwd", "file://files.example/etc/passwd",
        "gopher://127.0.0.1:25/xHELO%20localhost", "gopher://files.example:80/_GET%20/", "dict://attacker:11111/",
        "dict://127.0.0.1:6379/SAVE", "ldap://localhost:11211/%0astats%0aquit", "tftp://evil.com:12346/TESTUDPPACKET",
        "ftp://files.example/", "jar:http://127.0.0.1!/", "jar:https://files.example!/", "netdoc:///etc/passwd",
        "data:text/plain,hello", "javascript:alert(1)", "php://filter/resource=/etc/passwd", "smb://files.example/",
        "ws://files.example/", "view-source:http://files.example/", "s3://bucket/",
        "0://evil.com:80;http://google.com:80/", "//files.example/", "files.example/listing", "",
    ],
    "no host": [
        "http://", "http:///", "http:///127.0.0.1/", "http:127.0.0.1/", "http:/127.0.0.1/", "http://:80/",
        "http://?@127.0.0.1/", "http://#files.example/", "https://[]/", "http://[::1/", "http://::1]/",
        "http://[files.example]/", "http://[v1.files]/",
    ],
    "ports": [
        "http://files.example:0/", "http://files.example:00080/", "http://files.example:65536/",
        "http://files.example:99999999999/", "http://files.example:-80/", "http://files.example:+80/",
        "http://files.example:8_0/", "http://files.example:٨٠/", "http://files.example:/",
        "http://files.example:80:80/", "http://files.example:+11211aaa/", "http://files.example:00011211aaaa/",
        "http://files.example:22/", "http://files.example:25/", "http://files.example:6379/",
        "http://files.example:443/", "https://files.example:80/", "https://files.example:8443/",
        "sftp://files.example:2222/", "sftp://evil.com:11111/", "sftp://files.example:80/",
    ],
    "names that are none": [
        "http://-files.example/",
        "http://files-.example/",
        "http://evil$google.com",
        "http://files,example/",
        "http://files.example;127.0.0.1/",
        "http://files.example&127.0.0.1/",
        "http://*.example/",
        "http://" + "a" * 64 + ".example/",
        "http://" + ".".join(["a" * 60] * 5) + "/",
    ],
    "names that lead here": [f"http://{name}/" for name in DNS],
}  # fmt: skip
"""By category."""

PASSES = [
    ("http://files.example/", [PUBLIC]),
    ("http://FILES.example:80/listing?day=2013-03-08#top", [PUBLIC]),
    ("https://files.example/a%20b/@me/%2e%2e", [PUBLIC]),
    ("https://files.example:443/", [PUBLIC]),
    ("HTTPS://my_bucket.s3-eu-west-1.files.example/", [PUBLIC]),
    ("https://xn--bcher-kva.example/", [PUBLIC]),
    ("sftp://files.example/", [PUBLIC]),
    ("sftp://files.example:22/folder", [PUBLIC]),
    ("http://93.184.215.14/", [PUBLIC]),
    ("http://internal.example/", [PUBLIC]),
    ("http://localhost.example/", [PUBLIC]),
    ("http://127.0.0.1.example/", [PUBLIC]),
    ("http://0x7f.example/", [PUBLIC]),
    ("https://two.example/", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]),
    ("https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/", ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]),
    ("https://[2606:2800:021F:CB07:6820:80DA:AF6B:8B2C]/", ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]),
    ("https://nat64.example/", ["64:ff9b::5db8:d70e"]),
    *(
        (f"http://{address}/", [address])
        for address in (
            "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
            "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0",
            "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255",
            "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
        )
    ),
    *((f"http://[{address}]/", [address]) for address in ("2001:200::", "2003::", "2a00::1", "3ffe::", "3fff:1000::")),
]  # fmt: skip
"""Addresses, and what is connected to."""

DNS_OF_PASSES = {
    "two.example": ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14"],
    "nat64.example": ["64:ff9b::5db8:d70e"],
}
