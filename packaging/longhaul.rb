# Formula of Homebrew, for Linux. Release archives do not exist yet: put the address and the hash of
# a source archive here, or install from a checkout with `brew install --HEAD`.
class Longhaul < Formula
  desc "Bulk data transfer over long-haul networks"
  homepage "https://longhaul.example/"
  url "https://longhaul.example/longhaul-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "cmake" => :build
  depends_on "node" => :build
  depends_on "rust" => :build
  depends_on :linux

  def install
    system "make", "install", "PREFIX=#{prefix}"
  end

  test do
    (testpath/"a").write "hello"
    assert_match version.to_s, shell_output("#{bin}/longhaul --version")
    ENV["LONGHAUL_HOME"] = testpath/"home"
    assert_match(/^lhk1:/, shell_output("#{bin}/longhaul keys new"))
    assert_match "longhaul", shell_output("#{bin}/longhaul run -- sh -c 'echo $LD_PRELOAD'")
  end
end
